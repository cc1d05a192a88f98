//! `image save`, `info`, `verify`, `run`: images of processes, which need no daemon.

use super::console::{Console, code_of, report};
use crate::{
    command::{ImageAction, Map},
    event::Event,
    exit,
    failure::UsageError,
    image::{self, How},
    render::Audience,
};
use std::{iter, path::Path};
use vm_image::Modes;

impl Console {
    pub(super) fn image(&mut self, action: &ImageAction) -> anyhow::Result<u8> {
        if self.commands_on_stdin() && action.file().is_some_and(image::is_stdin) {
            let text = "standard input contains the commands here: give the image's file";
            return Err(UsageError(text.to_owned()).into());
        }
        match action {
            ImageAction::Help { action } => self.help(iter::once("image").chain(action.as_deref())),
            ImageAction::Save {
                rounds,
                forked,
                exit,
                carry,
                pid,
                file,
            } => {
                let modes = [
                    (*rounds, Modes::ROUNDS),
                    (*forked, Modes::FORKED),
                    (*exit, Modes::EXIT),
                    (*carry, Modes::CARRY),
                ];
                self.save_image(*pid, file, &modes)
            }
            ImageAction::Info { file } => self.image_info(file),
            ImageAction::Verify { file } => self.verify_image(file),
            ImageAction::Run {
                file,
                roll_back_files,
                map,
            } => self.run_image(file, *roll_back_files, map),
        }
    }

    fn save_image(&mut self, pid: i32, file: &Path, modes: &[(bool, Modes)]) -> anyhow::Result<u8> {
        let modes = modes.iter().filter(|(is_set, _)| *is_set);
        let modes = modes.fold(Modes::default(), |all, (_, mode)| all.with(*mode));
        let made = image::save(pid, file, modes, &self.interrupt())?;
        self.done(&Event::ImageMade(&made))
    }

    fn image_info(&mut self, file: &Path) -> anyhow::Result<u8> {
        let report = image::look(file, &self.interrupt())?;
        self.renderer.show(&Event::Image(&report))?;
        Ok(code_of(report.damage.is_none()))
    }

    fn verify_image(&mut self, file: &Path) -> anyhow::Result<u8> {
        let verdict = image::verify(file, &self.interrupt())?;
        self.renderer.show(&Event::ImageVerified(file, &verdict))?;
        Ok(code_of(verdict.is_ok()))
    }

    /// Becomes the process of an image. At the prompt, a separate console process becomes it.
    fn run_image(&mut self, file: &Path, roll_back: bool, maps: &[Map]) -> anyhow::Result<u8> {
        let maps = maps.to_vec();
        let how = How { roll_back, maps };
        let interrupt = self.interrupt();
        if self.commands_on_stdin() {
            let json = self.renderer.audience() == Audience::Programs;
            return image::run_apart(file, &how, &interrupt, json);
        }
        let renderer = &mut self.renderer;
        match image::run(file, &how, &interrupt) {
            Ok(reasons) => reasons.iter().try_for_each(|reason| {
                let text = format!("{} cannot be restored here: {reason}", file.display());
                renderer.failure("Obstacle", &text)
            })?,
            Err(error) => report(renderer, &error)?,
        }
        Ok(exit::NOT_RESTORED)
    }
}
