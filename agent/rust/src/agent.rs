//! The agent's C functions: agent/include/stackd/agent.h.
use std::os::raw::{c_char, c_int, c_uint};

/// `stackd_heartbeat_t`.
#[repr(C)]
pub struct Cell {
    _opaque: [u8; 0],
}

extern "C" {
    pub fn stackd_install() -> c_int;
    pub fn stackd_set_process_name(name: *const c_char) -> c_int;
    pub fn stackd_name_thread(name: *const c_char) -> c_int;
    pub fn stackd_dump_now(timeout_ms: c_int) -> c_int;
    pub fn stackd_heartbeat_register(name: *const c_char, limit_ms: c_uint) -> *mut Cell;
    pub fn stackd_beat(heartbeat: *mut Cell);
    pub fn stackd_heartbeat_suspend(heartbeat: *mut Cell);
    pub fn stackd_heartbeat_unregister(heartbeat: *mut Cell);
    pub fn stackd_version() -> *const c_char;
}

// As Linux numbers them on x86-64.
pub const EBUSY: i32 = 16;
pub const EINVAL: i32 = 22;
pub const ENOTCONN: i32 = 107;
pub const ETIMEDOUT: i32 = 110;
pub const ECANCELED: i32 = 125;
