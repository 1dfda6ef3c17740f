//! The layer: what all requests of a service have in common.

use std::sync::Arc;

use http::request::Parts;

use super::cors::Cors;
use super::policy::Policy;
use super::room::{self, Room};
use super::scoping::Scoping;
use super::service::{Front, Once};
use crate::engine::Engine;
use crate::fingerprint::Secret;

/// Makes a service's keyed requests happen once.
///
/// Put it inside of compression and outside of authentication that answers by itself: what an
/// outer layer adds is not kept, and what an inner one answers is judged by its status. A layer
/// around this one that cancels its future, a time-out for instance, changes nothing: the work
/// goes on and its outcome is kept.
#[derive(Clone, Debug)]
pub struct Layer(Arc<Front>);

impl Layer {
    /// A layer that runs on `engine`, tells callers apart by `scoping`, and digests with `secret`.
    ///
    /// The secret belongs to the store: another one makes all its fingerprints and principals
    /// incomparable.
    ///
    /// Whose keys they are is always said (S6):
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use oncekey::{engine::Engine, fingerprint::Secret, store::MemoryStore};
    /// use oncekey::http::{Layer, Scoping};
    ///
    /// # let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let layer = Layer::new(engine, Scoping::shared(), Secret::random());
    /// ```
    ///
    /// Neither is it left out:
    ///
    /// ```compile_fail
    /// # use std::sync::Arc;
    /// # use oncekey::{engine::Engine, fingerprint::Secret, store::MemoryStore};
    /// use oncekey::http::{Layer, Scoping};
    ///
    /// # let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let layer = Layer::new(engine, Secret::random());
    /// ```
    ///
    /// nor does anything stand in for it:
    ///
    /// ```compile_fail
    /// # use std::sync::Arc;
    /// # use oncekey::{engine::Engine, fingerprint::Secret, store::MemoryStore};
    /// use oncekey::http::{Layer, Scoping};
    ///
    /// # let engine = Engine::new(Arc::new(MemoryStore::new()));
    /// let layer = Layer::new(engine, Scoping::default(), Secret::random());
    /// ```
    #[must_use]
    pub fn new(engine: Engine, scoping: Scoping, secret: Secret) -> Self {
        let policy = Arc::new(Policy::default());
        Self(Arc::new(Front {
            engine,
            scoping,
            secret,
            policies: Arc::new(move |_| Arc::clone(&policy)),
            cors: Cors::default(),
            problem_base: None,
            room: Room::new(room::DEFAULT),
        }))
    }

    /// One policy for all requests.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        let policy = Arc::new(policy);
        self.with_policies(move |_| Arc::clone(&policy))
    }

    /// The policy that `find` returns for each request.
    #[must_use]
    pub fn with_policies(
        self,
        find: impl Fn(&Parts) -> Arc<Policy> + Send + Sync + 'static,
    ) -> Self {
        self.map(|front| front.policies = Arc::new(find))
    }

    /// Answers browsers of these origins (P2).
    #[must_use]
    pub fn with_cors(self, cors: Cors) -> Self {
        self.map(|front| front.cors = cors)
    }

    /// Puts the types of problems under this URL (H).
    #[must_use]
    pub fn with_problem_base(self, base: impl Into<Arc<str>>) -> Self {
        let base = base.into();
        self.map(|front| front.problem_base = Some(base))
    }

    /// What the bodies of keyed requests take in memory together, in bytes; **256 MiB** (X6).
    ///
    /// Half of it is for bodies of up to 8 KiB, half for larger ones; a body is never larger than
    /// the half, whatever its policy says (413). One that finds no room is not read until there is
    /// some, for at most its policy's `body_timeout`, and is then told 503 `overloaded` before
    /// anything ran. All services that this layer and its clones wrap share the room.
    #[must_use]
    pub fn with_request_buffers(self, bytes: usize) -> Self {
        self.map(|front| front.room = Room::new(bytes))
    }

    fn map(self, change: impl FnOnce(&mut Front)) -> Self {
        let mut front = Arc::unwrap_or_clone(self.0);
        change(&mut front);
        Self(Arc::new(front))
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Once<S>;

    fn layer(&self, inner: S) -> Once<S> {
        Once::new(inner, Arc::clone(&self.0))
    }
}
