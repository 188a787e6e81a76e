//! With the feature `torch`: compiles the C++ side against the torch (and torch_npu) of one Python environment.
//!
//! The environment is that of `PYO3_PYTHON` (set by setuptools-rust), else of `VIRTUAL_ENV`, else `python3`.
//! Without the feature there is nothing to do: the core needs neither Python nor C++.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "torch")]
    torch::build();
}

#[cfg(feature = "torch")]
mod torch {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Asks the interpreter without importing torch_npu, which needs CANN's libraries only at run time.
    const PROBE: &str = r#"
import importlib.util, importlib.metadata, os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
from torch.utils import cpp_extension
for path in cpp_extension.include_paths(): print("include=" + path)
for path in cpp_extension.library_paths(): print("lib=" + path)
print("torch=" + torch.__version__)
print("watch=" + torch.version.__file__)
print("abi=%d" % torch._C._GLIBCXX_USE_CXX11_ABI)
import sysconfig; print("pyinclude=" + sysconfig.get_path("include"))
spec = importlib.util.find_spec("torch_npu")
if spec is not None and spec.submodule_search_locations:
    print("npu_root=" + list(spec.submodule_search_locations)[0])
    print("npu=" + importlib.metadata.version("torch-npu"))
    print("watch=" + os.path.join(list(spec.submodule_search_locations)[0], "version.py"))
"#;

    #[derive(Default)]
    struct Environment {
        python: String,
        include: Vec<PathBuf>,
        lib: Vec<PathBuf>,
        torch: String,
        abi: String,
        python_include: Option<PathBuf>,
        npu_root: Option<PathBuf>,
        npu: String,
    }

    fn environment_variable(name: &str) -> Option<String> {
        println!("cargo:rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn python() -> String {
        environment_variable("PYO3_PYTHON")
            .or_else(|| {
                let root = PathBuf::from(environment_variable("VIRTUAL_ENV")?);
                Some(root.join("bin/python").display().to_string())
            })
            .unwrap_or_else(|| "python3".to_string())
    }

    fn probe() -> Environment {
        let python = python();
        let output = Command::new(&python).args(["-c", PROBE]).output();
        let output = output.unwrap_or_else(|error| {
            panic!(
                "cannot run {python} to find torch: {error}; set PYO3_PYTHON or VIRTUAL_ENV to a Python that has torch"
            )
        });
        if !output.status.success() {
            panic!(
                "the feature `torch` needs torch in {python}: install it (pip install torch==2.10.0) or set PYO3_PYTHON \
                 to a Python that has it, and build with --no-build-isolation.\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let mut found = Environment { python, ..Environment::default() };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            match key {
                "include" => found.include.push(value.into()),
                "lib" => found.lib.push(value.into()),
                "torch" => found.torch = value.into(),
                "abi" => found.abi = value.into(),
                "pyinclude" => found.python_include = Some(value.into()),
                "npu_root" => found.npu_root = Some(value.into()),
                "npu" => found.npu = value.into(),
                // Another torch in the same place: everything is built again.
                "watch" => println!("cargo:rerun-if-changed={value}"),
                _ => {}
            }
        }
        found
    }

    /// torch's headers ask for C++17 up to 2.13 and for C++20 after; `INFINI_CXX_STD` overrides.
    fn standard(torch: &str) -> String {
        environment_variable("INFINI_CXX_STD").unwrap_or_else(|| {
            let mut numbers = torch.split('.').map(|part| part.parse().unwrap_or(0u32));
            let version = (numbers.next().unwrap_or(2), numbers.next().unwrap_or(0));
            if version >= (2, 13) { "c++20" } else { "c++17" }.to_string()
        })
    }

    fn watch(folder: &str) {
        println!("cargo:rerun-if-changed={folder}");
    }

    pub fn build() {
        let found = probe();
        let npu = cfg!(feature = "torch-npu");
        watch("cpp");
        watch("src/ffi/bridge.rs");
        let mut sources = vec![
            "cpp/arguments.cpp",
            "cpp/admin.cpp",
            "cpp/capture.cpp",
            "cpp/hook.cpp",
            "cpp/operators.cpp",
            "cpp/overload.cpp",
            "cpp/prepared.cpp",
            "cpp/rearrange.cpp",
            "cpp/refusal.cpp",
            "cpp/substitution.cpp",
            "cpp/timing.cpp",
        ];
        if npu {
            sources.push("cpp/npu.cpp");
        }
        let mut build = cxx_build::bridge("src/ffi/bridge.rs");
        build
            .files(&sources)
            .std(&standard(&found.torch))
            .define("_GLIBCXX_USE_CXX11_ABI", found.abi.as_str())
            .flag_if_supported("-fvisibility=hidden")
            .warnings(false)
            .flag_if_supported("-Wall")
            .flag_if_supported("-Wno-unused-function")
            .include("cpp");
        for path in &found.include {
            build.flag("-isystem").flag(path);
        }
        if let Some(path) = &found.python_include {
            build.flag("-isystem").flag(path);
        }
        if npu {
            let root = found.npu_root.as_deref().unwrap_or_else(|| {
                panic!(
                    "the feature `torch-npu` needs torch_npu in {}: pip install --no-deps torch-npu==2.10.0.post4, or \
                     build with the feature `torch` alone",
                    found.python
                )
            });
            npu_headers(&mut build, root);
            println!("cargo:rustc-link-search=native={}", root.join("lib").display());
        }
        // Registration objects are referenced by nobody: without whole-archive the linker drops them.
        build.link_lib_modifier("+whole-archive");
        build.compile("infini_rearrange_cpp");
        for path in &found.lib {
            println!("cargo:rustc-link-search=native={}", path.display());
        }
        for library in ["torch_cpu", "torch", "c10"] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
        if npu {
            println!("cargo:rustc-link-lib=dylib=torch_npu");
            // libtorch_npu.so itself has unresolved symbols that only CANN defines.
            println!("cargo:rustc-cdylib-link-arg=-Wl,--allow-shlib-undefined");
        }
        // Symbols of Python are resolved in the process that imports us; they are bound when first used.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,lazy");
        println!("cargo:rustc-env=INFINI_BUILT_FOR_TORCH={}", found.torch);
        println!("cargo:rustc-env=INFINI_BUILT_FOR_TORCH_NPU={}", if npu { found.npu.as_str() } else { "" });
    }

    fn npu_headers(build: &mut cc::Build, root: &Path) {
        build.define("INFINI_TORCH_NPU", None);
        let include = root.join("include");
        for folder in ["", "third_party/acl/inc", "third_party/op-plugin", "third_party/hccl/inc"] {
            build.flag("-isystem").flag(include.join(folder));
        }
    }
}
