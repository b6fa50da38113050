//! Lets the stackd daemon take the stacks of this process on request, when it hangs and when it crashes.
//!
//! ```no_run
//! fn main() -> Result<(), stackd::Error> {
//!     stackd::install()
//! }
//! ```
//!
//! The process needs nothing else: the daemon finds it by the socket in `$STACKD_DIR` (default `/run/stackd`), and without a
//! daemon the agent waits for one. `STACKD_DISABLE=1` switches it off. What it costs is said in the README.

mod agent;
mod error;
mod heartbeat;
mod panic_hook;
#[cfg(feature = "tokio")]
pub mod tasks;

use std::ffi::{CStr, CString};
use std::time::Duration;

use agent::agent;

pub use error::Error;
pub use heartbeat::{heartbeat, Heartbeat};
pub use panic_hook::install_panic_hook;

/// Installs the agent's signal handlers and starts its one thread. Call it early in `main`; a second call does nothing.
///
/// Where `LD_PRELOAD` has brought an agent, that one serves, with all that this crate offers.
///
/// `Ok` also where STACKD_DISABLE=1 asks for no agent: a kill switch that makes `install()?` fail would kill the program.
pub fn install() -> Result<(), Error> {
    match error::check(unsafe { (agent().install)() }) {
        Err(Error::Os(agent::ECANCELED)) => Ok(()),
        result => result,
    }
}

/// Names this process in `stackctl ps` and in dumps. At most 63 bytes are kept; "" goes back to the program's name.
pub fn set_process_name(name: &str) -> Result<(), Error> {
    let name = CString::new(name).map_err(|_| Error::BadName)?;
    error::check(unsafe { (agent().set_process_name)(name.as_ptr()) })
}

/// Names the calling thread, for the kernel and so for dumps. At most 15 bytes are kept.
///
/// Threads of `std::thread::Builder::name` have their names already.
pub fn name_thread(name: &str) -> Result<(), Error> {
    let name = CString::new(name).map_err(|_| Error::BadName)?;
    error::check(unsafe { (agent().name_thread)(name.as_ptr()) })
}

/// Asks the daemon for a dump of this process and waits until its threads were captured, at most `timeout`; zero does not
/// wait.
pub fn dump_now(timeout: Duration) -> Result<(), Error> {
    error::check(unsafe { (agent().dump_now)(milliseconds(timeout)) })
}

/// The version of the agent inside, "0.1.0".
pub fn version() -> &'static str {
    unsafe { CStr::from_ptr((agent().version)()) }.to_str().unwrap_or_default()
}

/// Rounded up: a millisecond asked for is waited for.
fn milliseconds(duration: Duration) -> i32 {
    let rounded = duration.as_micros().saturating_add(999) / 1000;
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_inside_has_the_version_of_the_crate() {
        assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn parts_of_a_millisecond_are_waited_for() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1_001)), 1);
        assert_eq!(milliseconds(Duration::from_millis(7)), 7);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_name_with_a_nul_or_another_control_character_is_refused() {
        assert_eq!(set_process_name("a\0b"), Err(Error::BadName));
        assert_eq!(set_process_name("a\nb"), Err(Error::BadName));
        assert_eq!(name_thread("a\0b"), Err(Error::BadName));
        assert_eq!(name_thread("a\nb"), Err(Error::BadName));
    }
}
