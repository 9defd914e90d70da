//! What stands below the options of `chat`: its keys and commands. A test of the chat's own commands compares them.

pub(super) const TEXT: &str = "\
A line is a message; Enter sends it. Before a call that needs approval runs, you see its arguments, and of an edit the diff.

  a         approves                              d         denies, and asks why: the model reads it
  e         edits the arguments first             A         approves such calls always: offers rules to choose from
  v         shows all of what was cut             y, n      and Enter do as well; any other line denies with that reason

A key counts once the question has been on the screen for half a second and nothing is typed; otherwise Enter is needed.

While a turn runs:
  Enter     queues the next message               Up        takes the last queued one back
  Ctrl-S    gives the message to this turn        Esc       interrupts the turn; what waits comes back
  Ctrl-C    cancels the turn and what is queued;  Ctrl-D    leaves
            again leaves

Alt-Enter begins a new line, Tab completes /commands and @files, Ctrl-R searches what was typed before, Ctrl-O shows what the
model thought. !COMMAND runs a command of yours; the next message has its output. A path to a picture sends the picture.

Commands: /help /model /hooks /trace /tools /permissions /mcp /resume /clear /cost /undo /exit

As long as it runs it also takes up what nobody else does in the same store: turns that a crash left, answers that
expired, background hooks. From a pipe it reads line by line and ends with the input, with the exit code of the last turn;
a refused line is a failure. What a turn asks is answered with a line there: y, n, or why not. Of the commands it takes /help /hooks
/trace /tools /mcp /clear /cost /exit.";
