//! A small file system of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    Tmpfs,
    /// In a file, through a loop device: blocks are given out late, and freed late.
    Ext4,
}

/// A file system that lives as long as this.
#[derive(Debug)]
pub(super) struct SmallDisk {
    /// Of the image, where there is one.
    _image: TempDir,
    root: TempDir,
}

impl SmallDisk {
    /// A disk of so many MiB, or a loud notice; in CI the notice is a failure.
    pub(super) fn of(file_system: FileSystem, mebibytes: u64) -> Option<Self> {
        let reason = match Self::mounted(file_system, mebibytes) {
            Ok(disk) => return Some(disk),
            Err(reason) => reason,
        };
        let in_ci = std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci));
        assert!(!in_ci, "a full disk must be proven here, and cannot be: {reason}");
        eprintln!("****************************************************************");
        eprintln!("*** A DISK FULL OF VALUES WAS NOT TESTED ({file_system:?}). Run this as root.");
        eprintln!("*** {reason}");
        eprintln!("****************************************************************");
        None
    }

    fn mounted(file_system: FileSystem, mebibytes: u64) -> Result<Self, String> {
        let directory = || tempfile::tempdir().map_err(|error| error.to_string());
        let (image, root) = (directory()?, directory()?);
        let mut mount = Command::new("mount");
        match file_system {
            FileSystem::Tmpfs => {
                mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]);
            }
            FileSystem::Ext4 => {
                mount.args(["-t", "ext4", "-o", "loop"]).arg(made(image.path(), mebibytes)?);
            }
        }
        done(mount.arg(root.path()))?;
        Ok(Self { _image: image, root })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that still runs must not keep the test from going on.
        drop(Command::new("umount").arg("-l").arg(self.root.path()).status());
    }
}

/// An image of so many MiB with an ext4 in it.
fn made(directory: &Path, mebibytes: u64) -> Result<PathBuf, String> {
    let image = directory.join("image");
    let file = File::create(&image).map_err(|error| error.to_string())?;
    file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
    done(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
    Ok(image)
}

fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
}
