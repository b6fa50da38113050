//! To be preloaded: Breakpad's handler in a program that knows nothing of it. A crash leaves a minidump in the current folder.

use breakpad_handler::{BreakpadHandler, InstallOptions};

extern "C" fn install() {
    let handler = BreakpadHandler::attach(".", InstallOptions::BothHandlers, Box::new(|_| {}));
    std::mem::forget(handler.expect("Breakpad's handler"));
}

#[used]
#[link_section = ".init_array"]
static INSTALL: extern "C" fn() = install;
