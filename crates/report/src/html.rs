//! The report page: one file that needs no network, no script and no font.

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use unspin_model::summary::Summary;

mod context;
mod evidence;
mod plots;
mod sections;

/// The page's templates. Names that end in `.html` are escaped automatically.
const TEMPLATES: [(&str, &str); 8] = [
    ("page.html", include_str!("html/page.html")),
    ("tables.html", include_str!("html/tables.html")),
    ("workload.html", include_str!("html/workload.html")),
    ("evidence.html", include_str!("html/evidence.html")),
    ("glossary.html", include_str!("html/glossary.html")),
    ("session.html", include_str!("session/page.html")),
    ("plot.css", crate::svg::STYLE),
    ("style.css", include_str!("html/style.css")),
];

/// The page could not be rendered, because of an error in a template.
#[derive(Debug, thiserror::Error)]
#[error("cannot render the report page")]
pub struct HtmlError(#[from] minijinja::Error);

/// Returns the summary as a self-contained HTML page.
///
/// # Errors
/// Returns [`HtmlError`] for a broken template. No summary causes it.
pub fn page(summary: &Summary) -> Result<String, HtmlError> {
    render("page.html", Serde(context::page(summary)))
}

/// Renders a page from its template.
pub(crate) fn render<C: serde::Serialize>(
    template: &str,
    context: Serde<C>,
) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    let whole_lines = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(whole_lines);
    for (name, source) in TEMPLATES {
        environment.add_template(name, source)?;
    }
    let page = environment.get_template(template)?.render(context)?;
    // Templates escape markup, but not the characters that HTML forbids.
    Ok(page.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"))
}
