//! wget: whole files, resumption, and names that the server gives.

use super::*;

impl Site {
    /// wget in a folder, told nothing but what a test gives it.
    fn wget(&self, folder: &Path, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new("wget");
        command.args(["--no-config", "--no-proxy", "--no-hsts", "-S", "--tries=1", "--timeout=30"]);
        command.args(["--header", &self.credential()]).args(arguments).current_dir(folder);
        if let Some(certificate) = &self.certificate {
            command.arg("--ca-certificate").arg(certificate);
        }
        // Names are not ASCII, and what it prints is.
        let output = run(command.env("LC_ALL", "C.UTF-8"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    }
}

#[test]
fn a_blob_is_downloaded_whole() {
    for site in [Site::on_file(), Site::with_tls()] {
        for size in [0, 1, CHUNK, 3 * MIB + 1] {
            let bytes = sample(size);
            let id = site.uploaded(&bytes, &[]);
            let folder = site.empty_folder(&format!("whole{size}"));
            let (exit, said) = site.wget(&folder, &[&site.url(&format!("tblobs/{id}"))]);
            assert_eq!(exit, 0, "{said}");
            assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
            assert_same(&std::fs::read(folder.join(&id)).unwrap(), &bytes);
        }
    }
}

#[test]
fn a_download_that_was_cut_goes_on_where_it_was() {
    let site = Site::on_file();
    let bytes = sample(3 * CHUNK);
    let id = site.uploaded(&bytes, &[]);
    let folder = site.empty_folder("resumed");
    for kept in [1, CHUNK, CHUNK + 1, 3 * CHUNK - 1] {
        std::fs::write(folder.join(&id), &bytes[..kept]).unwrap();
        let (exit, said) = site.wget(&folder, &["-c", &site.url(&format!("tblobs/{id}"))]);
        assert_eq!(exit, 0, "{said}");
        assert!(said.contains("206 Partial Content"), "{said}");
        let range = format!("content-range: bytes {kept}-{}/{}", bytes.len() - 1, bytes.len());
        assert!(said.contains(&range), "{said}");
        assert_same(&std::fs::read(folder.join(&id)).unwrap(), &bytes);
    }
    let (exit, said) = site.wget(&folder, &["-c", &site.url(&format!("tblobs/{id}"))]);
    assert_eq!(exit, 0, "{said}");
    assert!(said.contains("416") && said.contains("already fully retrieved"), "{said}");
    assert_same(&std::fs::read(folder.join(&id)).unwrap(), &bytes);
}

/// Unlike curl it reads the encoded form of a name, and makes a file name of that by itself.
#[test]
fn a_name_of_the_server_is_taken_and_stays_in_its_folder() {
    let site = Site::in_memory();
    let names = [
        ("plain.txt", "plain.txt"),
        ("say%20%22hi%22.txt", "say \"hi\".txt"),
        ("%E2%82%AC%20rates.csv", "\u{20ac} rates.csv"),
        ("..%2F..%2Fescape.txt", "..%2F..%2Fescape.txt"),
        ("%2Fetc%2Fescape", "%2Fetc%2Fescape"),
        ("..", "__"),
        (".", "_"),
    ];
    for (given, saved) in names {
        let id = site.uploaded(given.as_bytes(), &[&format!("Blob-Name: {given}")]);
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("in/side");
        std::fs::create_dir_all(&inner).unwrap();
        let url = site.url(&format!("tblobs/{id}"));
        let (exit, said) = site.wget(&inner, &["--content-disposition", &url]);
        assert_eq!(exit, 0, "{given}: {said}");
        assert_eq!(listed(&inner), [saved], "{given}");
        assert_same(&std::fs::read(inner.join(saved)).unwrap(), given.as_bytes());
        assert_eq!(listed(outer.path()), ["in"], "{given}");
        assert_eq!(listed(&outer.path().join("in")), ["side"], "{given}");
    }
}

#[test]
fn what_is_not_there_is_an_error() {
    let site = Site::in_memory();
    let folder = site.empty_folder("absent");
    let (exit, said) = site.wget(&folder, &[&site.url(&format!("tblobs/{}", "A".repeat(43)))]);
    assert_eq!(exit, 8, "{said}");
    assert!(said.contains("404 Not Found"), "{said}");
    assert_eq!(listed(&folder), [] as [&str; 0]);
}
