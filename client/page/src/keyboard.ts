// Keys of the whole page: / searches, j and k go through rows, Esc leaves a field, ? explains.

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement
  );
}

function moveToRow(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 ? rows[step > 0 ? 0 : rows.length - 1] : rows[at + step];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

export function onKey(event: KeyboardEvent, help: () => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape') (event.target as HTMLElement).blur();
    return;
  }
  const actions: Record<string, () => void> = {
    '/': () => document.querySelector<HTMLElement>('main input[type=search]')?.focus(),
    j: () => moveToRow(1),
    k: () => moveToRow(-1),
    '?': help,
  };
  const action = actions[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}
