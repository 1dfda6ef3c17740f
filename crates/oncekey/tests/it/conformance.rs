//! The stores of this crate against the suite, and the suite against broken stores.

mod broken;
mod found;

mod memory {
    use std::sync::Arc;

    use oncekey::clock::Clock;
    use oncekey::conformance::Hands;
    use oncekey::store::MemoryStore;

    fn hands() -> Hands {
        let clock = Clock::manual();
        let store = MemoryStore::new().with_clock(clock.clone());
        Hands::inspecting(Arc::new(store)).with_clock(clock)
    }

    oncekey::conformance_tests!(hands(); store, inspect);
}

/// The same store by the machine's clock: what holds when time is told holds when it passes.
mod memory_in_real_time {
    use std::sync::Arc;

    use oncekey::conformance::Hands;
    use oncekey::store::MemoryStore;

    fn hands() -> Hands {
        Hands::inspecting(Arc::new(MemoryStore::new()))
    }

    oncekey::conformance_tests!(hands(); store, inspect);
}

#[cfg(feature = "embedded")]
mod embedded {
    use std::path::PathBuf;
    use std::sync::Arc;

    use oncekey::clock::Clock;
    use oncekey::conformance::Hands;
    use oncekey::store::EmbeddedStore;
    use oncekey::store::embedded::Options;

    fn open(folder: PathBuf, clock: Clock) -> Hands {
        let options = Options { clock: Some(clock.clone()), ..Options::default() };
        let store = EmbeddedStore::open(&folder, options).expect("the folder opens");
        Hands::recovering(Arc::new(store))
            .with_clock(clock.clone())
            .reopened_by(|| async move { open(folder, clock) })
    }

    /// A test's folder is deleted when its hands are over.
    fn hands(folder: &tempfile::TempDir) -> Hands {
        open(folder.path().join("data"), Clock::manual())
    }

    oncekey::conformance_tests!(
        hands(&tempfile::tempdir().expect("a folder"));
        store, inspect, recover, durable
    );
}
