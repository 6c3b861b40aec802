//! What needs a process of its own: the memory of many connections, and running out of
//! descriptors.
//!
//! A test here starts this test binary again for one ignored test, under limits set by the shell.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream as PlainStream;
use std::process::{Child, Command, Stdio};

use super::*;

const IDLE_CONNECTIONS: usize = 2_000;

/// Bytes of memory that so many idle connections may cost: 30 KiB each.
const IDLE_MEMORY: usize = 60 * 1024 * 1024;

/// Starts the ignored test `name` of this module in a process with so many descriptors.
fn start_alone(name: &str, descriptors: u32) -> Child {
    let shell = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    let test = format!("{}::{name}", module_path!().split_once("::").expect("a path").1);
    Command::new("sh")
        .args(["-c", &shell])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn two_thousand_idle_connections_are_cheap_and_delay_nobody() {
    let mut alone = start_alone("two_thousand_idle_connections", 2 * 2_000 + 200);
    let mut said = String::new();
    alone.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(alone.wait().unwrap().success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// The clients are bare sockets of the same process: they cost descriptors and no memory of ours.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by the test above, as it needs descriptors and memory of its own"]
async fn two_thousand_idle_connections() {
    let patient = ListenLimits { header: 60 * LIMIT, idle: 60 * LIMIT, ..limits() };
    let server = Server::start(patient).await;
    server.serves_others().await;
    server.until_open(0).await;
    let before = resident();

    let mut clients = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let mut client = server.connect().await;
        client.send(ROOT).await;
        assert_eq!(client.answer().await.0, 200);
        clients.push(client.stream);
    }
    server.until_open(IDLE_CONNECTIONS).await;
    let cost = resident().saturating_sub(before);
    println!("{IDLE_CONNECTIONS} idle connections cost {} KiB", cost / 1024);
    assert!(cost < IDLE_MEMORY, "{cost} bytes");
    assert!(cost > IDLE_CONNECTIONS * 256, "{cost} bytes cannot be all of it");
    server.serves_others().await;
    drop(clients);
    server.until_open(0).await;
}

/// The address that a process started for [`serve_until_stdin_ends`] says it serves.
fn served_address(process: &mut Child) -> SocketAddr {
    let said = BufReader::new(process.stdout.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once("serving ")?.1.to_owned()));
    // The process must not fail for want of somebody who reads the rest.
    std::thread::spawn(move || lines.for_each(drop));
    address.expect("an address").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process for the test below"]
async fn serve_until_stdin_ends() {
    let server = Server::start(ListenLimits { header: 60 * LIMIT, ..limits() }).await;
    println!("\nserving {}", server.address);
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(server.stop().await, Drained { cut: 0 });
}

/// Processor time that a process has used, in ticks of 10 ms.
fn ticks(process: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<_> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Descriptors in use that count towards a limit of so many.
fn descriptors(process: &Child, limit: usize) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    let number = |name: std::ffi::OsString| name.to_string_lossy().parse::<usize>().unwrap();
    open.filter(|entry| number(entry.as_ref().unwrap().file_name()) < limit).count()
}

/// Without descriptors the loop neither spins nor ends, and serves again once there are some.
#[tokio::test(flavor = "multi_thread")]
async fn running_out_of_descriptors_is_survived() {
    let mut process = start_alone("serve_until_stdin_ends", 64);
    let address = served_address(&mut process);
    let clients: Vec<_> = (0..100).map(|_| PlainStream::connect(address).unwrap()).collect();
    until("descriptors are open", 64, || descriptors(&process, 64)).await;

    let before = ticks(&process);
    pause(LIMIT).await;
    let spent = ticks(&process) - before;
    assert!(spent < 30, "{spent} ticks of a hundred were spent on nothing");
    assert_eq!(descriptors(&process, 64), 64, "the control: there are still none");

    drop(clients);
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.send(ROOT).await;
    assert_eq!(client.answer().await.0, 200);
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}
