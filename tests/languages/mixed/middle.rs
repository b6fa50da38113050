//! A library between two layers of another language: calls back what it is given.
use std::hint::black_box;

#[inline(never)]
fn through_rust(call_back: extern "C" fn()) {
    call_back();
    black_box(());
}

#[no_mangle]
pub extern "C" fn rust_calls_back(call_back: extern "C" fn()) {
    through_rust(call_back);
    black_box(());
}
