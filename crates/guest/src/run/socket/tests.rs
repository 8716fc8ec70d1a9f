use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::{CLIENTS_MAX, LINE_MAX};
use super::*;

/// Returns a folder for the test, and a path below it whose folder does not exist.
fn place() -> (TempDir, PathBuf) {
    let own = tempfile::tempdir().unwrap();
    let path = own.path().join("unspin/run.sock");
    (own, path)
}

fn figures() -> Stats {
    Stats { vcpus: 4, used: 2, used_vcpus: vec![0, 1], ..Stats::default() }
}

/// Answers until all questions are answered, or for 10 s.
fn serve(socket: &mut Socket, until: impl Fn() -> bool) {
    let started = Instant::now();
    while !until() && started.elapsed() < Duration::from_secs(10) {
        socket.step(&figures());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn connect(socket: &mut Socket, path: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.step(&figures());
    stream
}

#[test]
fn figures_are_told_and_the_socket_leaves_nothing() {
    let (_own, path) = place();
    let mut socket = Socket::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let asked = std::thread::spawn({
        let path = path.clone();
        move || ask(&path)
    });
    serve(&mut socket, || asked.is_finished());
    assert_eq!(asked.join().unwrap().unwrap(), figures());
    drop(socket);
    assert!(!path.exists());
    assert!(matches!(ask(&path), Err(AskError::Nobody { .. })));
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else() {
    let (_own, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = Socket::bind(&path).unwrap();
    assert!(matches!(Socket::bind(&path), Err(BindError::Taken)));
    drop(first);
    fs::write(&path, "precious").unwrap();
    assert!(matches!(Socket::bind(&path), Err(BindError::NoSocket)));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

/// A process that acts takes the path of one that rests, which takes it back afterwards.
#[test]
fn who_rests_gives_way_and_returns() {
    let (_own, path) = place();
    let resting = Stats { resting: Some("help".into()), ..Stats::default() };
    let mut rests = Socket::bind(&path).unwrap();
    let acts = std::thread::spawn({
        let path = path.clone();
        move || Socket::bind(&path)
    });
    let began = Instant::now();
    while !acts.is_finished() && began.elapsed() < Duration::from_secs(10) {
        rests.step(&resting);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut acts = acts.join().unwrap().unwrap();
    let asked = std::thread::spawn({
        let path = path.clone();
        move || ask(&path)
    });
    serve(&mut acts, || asked.is_finished());
    assert_eq!(asked.join().unwrap().unwrap(), figures());
    drop(acts);
    rests.step(&resting);
    assert!(path.exists());
    drop(rests);
    assert!(!path.exists());
}

#[test]
fn requests_in_pieces_and_in_heaps_are_answered() {
    let (_own, path) = place();
    let mut socket = Socket::bind(&path).unwrap();
    let mut client = connect(&mut socket, &path);
    for piece in ["sta", "ts\nfish\n\nst", "ats\n"] {
        client.write_all(piece.as_bytes()).unwrap();
        socket.step(&figures());
    }
    let lines = BufReader::new(client).lines().take(4).collect::<Result<Vec<_>, _>>().unwrap();
    let told: Vec<bool> = lines.iter().map(|line| line.contains("\"vcpus\":4")).collect();
    assert_eq!(told, [true, false, false, true]);
    assert!(lines[1].starts_with("{\"error\":"), "{}", lines[1]);
}

#[test]
fn who_asks_too_much_is_let_go() {
    let (_own, path) = place();
    let mut socket = Socket::bind(&path).unwrap();
    let mut long = connect(&mut socket, &path);
    long.write_all(&[b'x'; LINE_MAX * 2]).unwrap();
    socket.step(&figures());
    socket.step(&figures());
    let mut told = String::new();
    let _ = long.read_to_string(&mut told);
    assert!(told.contains("too long"), "{told}");

    let others: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| connect(&mut socket, &path)).collect();
    let mut refused = connect(&mut socket, &path);
    told.clear();
    refused.read_to_string(&mut told).unwrap();
    assert!(told.contains("too many"), "{told}");
    drop(others);
    socket.step(&figures());
    let mut next = connect(&mut socket, &path);
    next.write_all(b"stats\n").unwrap();
    socket.step(&figures());
    assert!(BufReader::new(next).lines().next().unwrap().unwrap().contains("vcpus"));
}

/// A client that does not read takes none of the server's time.
#[test]
fn who_does_not_read_is_let_go() {
    let (_own, path) = place();
    let mut socket = Socket::bind(&path).unwrap();
    let mut deaf = connect(&mut socket, &path);
    deaf.set_nonblocking(true).unwrap();
    let started = Instant::now();
    let mut let_go = false;
    while !let_go && started.elapsed() < Duration::from_secs(10) {
        let_go = deaf
            .write_all(b"stats\nstats\nstats\n")
            .is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        socket.step(&figures());
    }
    assert!(let_go);
}
