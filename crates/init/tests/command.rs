//! The program on a machine that is not a guest. This test makes cargo build the program wherever
//! the workspace is tested, and the lab's tests find it next to `unspin`.

use std::process::Command;

#[test]
fn outside_of_a_guest_it_refuses_and_names_the_command_that_uses_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_unspin-init")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("unspin lab run"), "{text}");
}
