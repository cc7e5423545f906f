//! A backend of `ratatui` that keeps the bytes for a terminal, instead of waiting until it takes them.

use std::{convert::Infallible, fmt::Write as _};

use ratatui_core::{
    backend::{Backend, ClearType, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
    style::{Color, Modifier},
};

/// The bytes for a terminal of this size.
#[derive(Default)]
pub(super) struct EncodedScreen {
    /// The size.
    pub(super) size: Size,
    /// The bytes, as UTF-8.
    pub(super) text: String,
}

impl Backend for EncodedScreen {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut next, mut style) = (None, String::new());
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
            }
            let wanted = attributes(cell);
            if style != wanted {
                self.text.push_str(&wanted);
                style = wanted;
            }
            self.text.push_str(cell.symbol());
            next = Some((x + 1, y));
        }
        if next.is_some() {
            self.text.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.text.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        // It is all of a full screen.
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize {
            columns_rows: self.size,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    // The cursor is hidden.
    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Returns the sequence that sets the attributes of a cell: those that the screen uses.
fn attributes(cell: &Cell) -> String {
    let mut all = String::from("\x1b[0");
    for (modifier, code) in [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::REVERSED, ";7"),
    ] {
        if cell.modifier.contains(modifier) {
            all.push_str(code);
        }
    }
    all.push_str(match cell.fg {
        Color::Red => ";31",
        Color::Yellow => ";33",
        Color::Magenta => ";35",
        _ => "",
    });
    all.push('m');
    all
}
