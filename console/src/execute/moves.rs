//! `move`.

use super::console::Console;
use crate::{
    ask,
    command::MoveArgs,
    event::Event,
    failure::ClientError,
    progress::{LOOK, Moving},
};
use vm_wire::peer::MoveWay;

impl Console {
    /// Moves a task, and shows the progress of the move until its end.
    pub(super) fn move_task(&mut self, args: &MoveArgs) -> anyhow::Result<u8> {
        let way = MoveWay {
            precopy: !args.no_precopy,
            compress: args.compress,
            suspended: false,
        };
        let tid = self.resolve(&args.tid)?;
        let name = tid.show(self.machine()?).to_string();
        let mut moving = Moving::new(self.renderer.audience(), tid, &name);
        let request = ask::move_task(tid, args.host.clone(), way);
        let report = self.client()?.ask_while(request, LOOK, |client| {
            moving.show(&client.ask(ask::moves())?);
            Ok(())
        });
        moving.end();
        if let Err(ClientError::Interrupted) = report {
            let text = format!("the move of {name} continues: 'vm ps' shows on which host it is");
            self.renderer.notice(&text)?;
        }
        let report = report?;
        let conf = self.conf()?;
        self.done(&Event::Moved(tid, &report, &conf))
    }
}
