//! The agent's C functions: agent/include/stackd/agent.h.
use std::mem::transmute_copy;
#[cfg(feature = "tokio")]
use std::os::raw::c_ulong;
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `stackd_heartbeat_t`.
#[repr(C)]
pub struct Cell {
    _opaque: [u8; 0],
}

/// `stackd_give_tasks_fn` and `stackd_task_source_fn`.
#[cfg(feature = "tokio")]
pub type GiveTasks = unsafe extern "C" fn(*mut c_void, *const c_void, c_ulong);
#[cfg(feature = "tokio")]
pub type TaskSource = unsafe extern "C" fn(c_uint, GiveTasks, *mut c_void);

extern "C" {
    fn stackd_install() -> c_int;
    fn stackd_set_process_name(name: *const c_char) -> c_int;
    fn stackd_name_thread(name: *const c_char) -> c_int;
    fn stackd_dump_now(timeout_ms: c_int) -> c_int;
    fn stackd_heartbeat_register(name: *const c_char, limit_ms: c_uint) -> *mut Cell;
    fn stackd_beat(heartbeat: *mut Cell);
    fn stackd_heartbeat_suspend(heartbeat: *mut Cell);
    fn stackd_heartbeat_unregister(heartbeat: *mut Cell);
    #[cfg(feature = "tokio")]
    fn stackd_set_task_source(source: Option<TaskSource>) -> c_int;
    fn stackd_version() -> *const c_char;
}

/// The agent that serves this process.
pub struct Agent {
    pub install: unsafe extern "C" fn() -> c_int,
    pub set_process_name: unsafe extern "C" fn(*const c_char) -> c_int,
    pub name_thread: unsafe extern "C" fn(*const c_char) -> c_int,
    pub dump_now: unsafe extern "C" fn(c_int) -> c_int,
    pub heartbeat_register: unsafe extern "C" fn(*const c_char, c_uint) -> *mut Cell,
    pub beat: unsafe extern "C" fn(*mut Cell),
    pub heartbeat_suspend: unsafe extern "C" fn(*mut Cell),
    pub heartbeat_unregister: unsafe extern "C" fn(*mut Cell),
    #[cfg(feature = "tokio")]
    pub set_task_source: unsafe extern "C" fn(Option<TaskSource>) -> c_int,
    pub version: unsafe extern "C" fn() -> *const c_char,
}

/// Where `LD_PRELOAD` has brought an agent, that one: two would take each other's signals. Else the one linked in.
pub fn agent() -> &'static Agent {
    static CHOSEN: AtomicPtr<Agent> = AtomicPtr::new(ptr::null_mut());
    let mut chosen = CHOSEN.load(Ordering::Acquire);
    if chosen.is_null() {
        // Threads that are here at once choose the same: one of them too many is leaked.
        chosen = Box::into_raw(Box::new(choose()));
        CHOSEN.store(chosen, Ordering::Release);
    }
    unsafe { &*chosen }
}

fn choose() -> Agent {
    // The casts give `loaded` the types of the fields.
    unsafe {
        Agent {
            install: loaded(b"stackd_install\0").unwrap_or(stackd_install as _),
            set_process_name: loaded(b"stackd_set_process_name\0").unwrap_or(stackd_set_process_name as _),
            name_thread: loaded(b"stackd_name_thread\0").unwrap_or(stackd_name_thread as _),
            dump_now: loaded(b"stackd_dump_now\0").unwrap_or(stackd_dump_now as _),
            heartbeat_register: loaded(b"stackd_heartbeat_register\0").unwrap_or(stackd_heartbeat_register as _),
            beat: loaded(b"stackd_beat\0").unwrap_or(stackd_beat as _),
            heartbeat_suspend: loaded(b"stackd_heartbeat_suspend\0").unwrap_or(stackd_heartbeat_suspend as _),
            heartbeat_unregister: loaded(b"stackd_heartbeat_unregister\0").unwrap_or(stackd_heartbeat_unregister as _),
            #[cfg(feature = "tokio")]
            set_task_source: loaded(b"stackd_set_task_source\0").unwrap_or(stackd_set_task_source as _),
            version: loaded(b"stackd_version\0").unwrap_or(stackd_version as _),
        }
    }
}

/// A function of a shared library in this process. `F` must be its type, and `name` end with a NUL.
unsafe fn loaded<F>(name: &[u8]) -> Option<F> {
    // A static program has none, and of glibc's dlsym() nothing but the trouble.
    if cfg!(target_feature = "crt-static") {
        return None;
    }
    extern "C" {
        fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    }
    const RTLD_DEFAULT: *mut c_void = ptr::null_mut();
    let found = dlsym(RTLD_DEFAULT, name.as_ptr().cast());
    if found.is_null() {
        None
    } else {
        Some(transmute_copy::<*mut c_void, F>(&found))
    }
}

// As Linux numbers them on x86-64.
pub const EBUSY: i32 = 16;
pub const EINVAL: i32 = 22;
pub const ENOTCONN: i32 = 107;
pub const ETIMEDOUT: i32 = 110;
pub const ECANCELED: i32 = 125;
