//! stub
/// stub
pub fn run(_: crate::cli::DemoArgs) -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
