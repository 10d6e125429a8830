"""How anything is measured: the instrument in a child process, its parent's side, and sampling."""
