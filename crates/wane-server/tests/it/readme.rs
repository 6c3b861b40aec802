//! The README's first commands, run as they are written: they print what it says they print.

use crate::server::{Server, wane};

const README: &str = include_str!("../../../../README.md");

/// The blocks of commands with their output, as lists of lines.
fn consoles() -> Vec<Vec<&'static str>> {
    let blocks = README.split("```console\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default().lines().collect()).collect()
}

/// Times that pass, and what differs from machine to machine, made alike.
fn masked(text: &str, server: &Server) -> String {
    let text = text.replace(&server.http.to_string(), "HTTP").replace("127.0.0.1:8628", "HTTP");
    let text = text.replace(&server.admin.to_string(), "ADMIN").replace("127.0.0.1:8629", "ADMIN");
    let data = server.data().display().to_string();
    let text = text.replace("/where/you/are/wane-data", "DATA").replace("./wane-data", "DATA");
    text.replace(&data, "DATA").replace("15m 0s", "14m 59s")
}

#[test]
fn serve_greets_as_the_readme_says() {
    let server = Server::on_file();
    let promised = consoles()[0].clone();
    assert_eq!(promised[0], "$ cargo run --release -- serve");
    let promised = masked(&promised[1..].join("\n"), &server);
    let log = server.log();
    let lines = promised.trim_end().lines().count();
    let greeting = log.lines().take(lines).collect::<Vec<_>>().join("\n");
    assert_eq!(masked(&greeting, &server), promised.trim_end());
}

#[test]
fn the_first_commands_print_what_the_readme_says() {
    let server = Server::on_file();
    let mut promised = Vec::new();
    let mut printed = Vec::new();
    for line in &consoles()[1] {
        promised.push(masked(line, &server));
        let Some(command) = line.strip_prefix("$ wane ") else { continue };
        let output = wane()
            .args(command.split(' '))
            .env("WANE_URL", format!("http://{}", server.http))
            .env("WANE_DATA", server.data())
            .output()
            .unwrap();
        printed.push((*line).to_owned());
        for stream in [output.stdout, output.stderr] {
            let text = String::from_utf8(stream).unwrap();
            printed.extend(text.lines().map(|line| masked(line, &server)));
        }
    }
    assert_eq!(printed, promised);
}
