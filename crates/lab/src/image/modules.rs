//! The kernel modules that the control channel needs, if the kernel does not have them built in.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::Path;

use super::ImageError;

/// Modules that a guest needs before it can say hello. A kernel with a built-in driver does not
/// list it in modules.dep.
const WANTED: [&str; 2] = ["virtio_pci", "virtio_console"];

/// Returns the name and decompressed content of each module to load, dependencies first.
pub fn needed(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, ImageError> {
    let dep = folder.join("modules.dep");
    let text = fs::read_to_string(&dep).map_err(|e| super::io_error(&dep, e))?;
    let mut out = Vec::new();
    for path in load_order(&text, &WANTED) {
        let bytes = read_module(&folder.join(&path))?;
        out.push((module_name(&path) + ".ko", bytes));
    }
    Ok(out)
}

/// Returns the paths to load for `wanted`, each after its dependencies.
fn load_order(modules_dep: &str, wanted: &[&str]) -> Vec<String> {
    let depends: BTreeMap<String, (&str, Vec<&str>)> = modules_dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, deps)| (module_name(path), (path, deps.split_whitespace().collect())))
        .collect();
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let Some((path, deps)) = depends.get(*name) else { continue };
        // modules.dep lists all dependencies of a module, the innermost last.
        for path in deps.iter().rev().chain([path]) {
            if !order.iter().any(|known| known == path) {
                order.push((*path).to_owned());
            }
        }
    }
    order
}

fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn read_module(path: &Path) -> Result<Vec<u8>, ImageError> {
    let failed = |detail: String| ImageError::Module { path: path.display().to_string(), detail };
    let bytes = fs::read(path).map_err(|e| failed(e.to_string()))?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("ko") => Ok(bytes),
        Some("xz") => {
            let mut out = Vec::new();
            lzma_rs::xz_decompress(&mut BufReader::new(&bytes[..]), &mut out)
                .map_err(|e| failed(format!("{e:?}")))?;
            Ok(out)
        }
        _ => Err(failed("only .ko and .ko.xz can be read; build these modules in".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let dep = "kernel/a/virtio_pci.ko.xz: kernel/a/virtio-ring.ko.xz kernel/a/virtio.ko.xz\n\
                   kernel/a/virtio_console.ko.xz: kernel/a/virtio.ko.xz\n";
        assert_eq!(
            load_order(dep, &WANTED),
            [
                "kernel/a/virtio.ko.xz",
                "kernel/a/virtio-ring.ko.xz",
                "kernel/a/virtio_pci.ko.xz",
                "kernel/a/virtio_console.ko.xz"
            ]
        );
        assert_eq!(module_name("kernel/a/virtio-ring.ko.xz"), "virtio_ring");
    }
}
