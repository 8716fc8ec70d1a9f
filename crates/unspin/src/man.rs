//! `unspin man`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help;

/// Write man pages, one per verb
#[derive(clap::Args)]
pub struct Args {
    /// The folder to write them to
    folder: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let mut command = crate::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, "", folder).with_context(|| format!("write to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a verb, and the pages of the verbs below it.
fn write_pages(command: &Command, verb: &str, folder: &Path) -> io::Result<()> {
    let page = format!("unspin {verb}").trim_end().replace(' ', "-");
    let mut bytes = Vec::new();
    write_page(command, verb, &page, &mut bytes)?;
    std::fs::write(folder.join(format!("{page}.1")), bytes)?;
    for sub in command.get_subcommands() {
        let name = format!("{verb} {}", sub.get_name());
        write_pages(sub, name.trim_start(), folder)?;
    }
    Ok(())
}

fn write_page(command: &Command, verb: &str, page: &str, out: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone()).title(page).manual("unspin").date("");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let help = help::of(verb);
    section("EXAMPLES", help.examples.iter(), out)?;
    section("EXIT STATUS", help.statuses(), out)?;
    see_also(help, page, out)?;
    man.render_version_section(out)
}

/// Writes a section of terms and their meanings.
fn section<'a>(
    title: &str,
    terms: impl Iterator<Item = &'a (&'a str, &'a str)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(*term)]).text([roman(*meaning)]);
    }
    roff.to_writer(out)
}

fn see_also(help: &help::Help, page: &str, out: &mut dyn Write) -> io::Result<()> {
    let root = (page != "unspin").then(|| "unspin(1)".to_owned());
    let others = help.see.iter().map(|verb| format!("unspin-{verb}(1)"));
    let pages: Vec<String> = root.into_iter().chain(others).collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff.to_writer(out)
}
