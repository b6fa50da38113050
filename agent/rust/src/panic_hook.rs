use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer than a dump takes; a panic waits no longer for it.
const WAIT: Duration = Duration::from_secs(2);

/// A server that catches a panic of each request goes on serving.
const LEAST_DISTANCE_MS: u64 = 1000;

static TAKING: AtomicBool = AtomicBool::new(false);
static LAST_MS: AtomicU64 = AtomicU64::new(0);

/// Has each panic that unwinds dumped with the stack of the thread that panics. The hook that was set until now runs after
/// it as ever (by default the one that prints the message).
///
/// At most one dump a second is taken, and of panics that meet one only the first. The message does not leave the process:
/// it may hold anything. In a program with `panic = "abort"` this does nothing: the abort is a crash, and dumped as one.
pub fn install_panic_hook() {
    if cfg!(panic = "abort") {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        dump_panicking_thread();
        before(info);
    }));
}

/// Its name is what tells such a dump from others, so it stays on the stack.
#[inline(never)]
fn dump_panicking_thread() {
    if TAKING.swap(true, Ordering::Acquire) {
        return;
    }
    if is_due() {
        // Without a daemon there is no dump, and nothing that the panicking program could do about it.
        let _ = crate::dump_now(WAIT);
    }
    TAKING.store(false, Ordering::Release);
}

/// By the wall clock: `Instant` has no constant to begin with. A clock that is set back costs the distance, at most.
fn is_due() -> bool {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let last_ms = LAST_MS.load(Ordering::Relaxed);
    let due = now_ms < last_ms || now_ms - last_ms >= LEAST_DISTANCE_MS;
    if due {
        LAST_MS.store(now_ms, Ordering::Relaxed);
    }
    due
}
