use std::ffi::CString;
use std::time::Duration;

use crate::agent::{agent, Cell};

/// A promise that a piece of work comes round again in time: an event loop, a worker, a poller.
///
/// The daemon watches it from outside, so it works with every thread of the process stuck. Where the promise is broken it
/// takes a dump, with the thread that made the heartbeat first. Dropping it ends the promise.
#[derive(Debug)]
pub struct Heartbeat {
    cell: *mut Cell,
}

// The agent lets any thread beat, suspend and unregister.
unsafe impl Send for Heartbeat {}
unsafe impl Sync for Heartbeat {}

/// Makes a heartbeat, which is watched from its first beat on. `limit` is the longest time between two beats that is well,
/// 10 ms at least. At most 47 bytes of `name` are kept, up to its first NUL.
///
/// It never fails: where all 64 of a process are taken, the daemon does not watch this one.
pub fn heartbeat(name: &str, limit: Duration) -> Heartbeat {
    let until_nul = name.split('\0').next().unwrap_or_default();
    let name = CString::new(until_nul).unwrap_or_default();
    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    Heartbeat { cell: unsafe { (agent().heartbeat_register)(name.as_ptr(), limit_ms) } }
}

impl Heartbeat {
    /// "I am alive": one store, no system call.
    #[inline]
    pub fn beat(&self) {
        unsafe { (agent().beat)(self.cell) }
    }

    /// Not watched until the next beat: before a wait for work that may last.
    #[inline]
    pub fn suspend(&self) {
        unsafe { (agent().heartbeat_suspend)(self.cell) }
    }

    /// Runs `wait` unwatched, and beats when it is over: `loop { let job = heartbeat.suspended(|| queue.recv()); … }`.
    pub fn suspended<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.suspend();
        let result = wait();
        self.beat();
        result
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        unsafe { (agent().heartbeat_unregister)(self.cell) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_can_be_used_from_any_thread_and_by_any_name() {
        let heartbeat = heartbeat("loop\0behind", Duration::MAX);
        std::thread::scope(|scope| {
            scope.spawn(|| heartbeat.beat());
        });
        assert_eq!(heartbeat.suspended(|| 7), 7);
    }

    #[test]
    fn more_than_the_process_can_have_do_no_harm() {
        let many: Vec<Heartbeat> = (0..200).map(|_| heartbeat("one of many", Duration::from_secs(1))).collect();
        many.iter().for_each(Heartbeat::beat);
    }
}
