//! Compiles the agent's C sources into the crate: from `agent/` in the package, from the repository around it otherwise.
//!
//! STACKD_AGENT_ARCHIVE=/path/libstackd_agent.a links that archive and compiles nothing.
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the static agent in `agent/`; all but `preload`.
const ROOMS: [&str; 16] = [
    "sys",
    "ring",
    "maps",
    "runtimes",
    "runtimes/cpython",
    "runtimes/v8",
    "runtimes/go",
    "runtimes/hotspot",
    "runtimes/php",
    "runtimes/ruby",
    "capture",
    "signals",
    "dump",
    "crash",
    "helper",
    "install",
];

fn main() {
    println!("cargo:rerun-if-env-changed=STACKD_AGENT_ARCHIVE");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if (target("OS"), target("ARCH")) != ("linux".into(), "x86_64".into()) {
        panic!("stackd's agent knows Linux on x86-64 only");
    }
    match env::var("STACKD_AGENT_ARCHIVE") {
        Ok(archive) => link_archive(Path::new(&archive)),
        Err(_) => compile(&target("ENV")),
    }
}

fn link_archive(archive: &Path) {
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(name) = name.strip_prefix("lib").and_then(|name| name.strip_suffix(".a")) else {
        panic!("STACKD_AGENT_ARCHIVE must name a file lib….a, not {}", archive.display());
    };
    println!("cargo:rerun-if-changed={}", archive.display());
    println!("cargo:rustc-link-search=native={}", archive.parent().unwrap().display());
    println!("cargo:rustc-link-lib=static={name}");
}

fn compile(libc: &str) {
    let root = root();
    let sources = sources(&root.join("agent"));
    let mut build = cc::Build::new();
    // The options of the signal handlers (HANDLER_OPTS in agent/BUILD) for all files: one list of files less to keep. A
    // debug build has -O2 too, since the handlers have a budget of stack.
    build.files(&sources).include(&root).include(root.join("agent/include"));
    build.std("c11").opt_level(2).pic(true).warnings(false).define("_GNU_SOURCE", None);
    for flag in [
        "-g1",
        "-fvisibility=hidden",
        "-fno-omit-frame-pointer",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-jump-tables",
        "-fno-sanitize=all",
    ] {
        build.flag(flag);
    }
    // clang has none of these loops to distribute, and no such option.
    build.flag_if_supported("-fno-tree-loop-distribute-patterns");
    if libc == "musl" {
        // The kernel's headers, which musl-gcc does not look for where a distribution of another libc keeps them.
        build.flag("-idirafter").flag("/usr/include").flag("-idirafter").flag("/usr/include/x86_64-linux-gnu");
    }
    build.compile("stackd_agent");
}

/// The folder that has the agent's sources in `agent/`.
fn root() -> PathBuf {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let repository = here.join("../..");
    for root in [here, repository] {
        if root.join("agent/install/install.c").exists() {
            return root;
        }
    }
    panic!("the agent's C sources are neither in this package nor around it: make the package with agent/rust/package.sh");
}

/// All but those of the preloaded library, which interpose functions of libc, and of the one for Java VMs.
fn sources(agent: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for room in ROOMS {
        println!("cargo:rerun-if-changed={}", agent.join(room).display());
        for entry in fs::read_dir(agent.join(room)).expect(room).flatten() {
            let path = entry.path();
            if path.extension() == Some("c".as_ref()) && !path.ends_with("java_agent.c") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    sources
}
