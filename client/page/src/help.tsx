import type { RefObject } from 'preact';

const KEYS: [string, string][] = [
  ['/', 'search in what is shown'],
  ['j  k', 'next row, row before'],
  ['Enter', 'open the row; zoom the box of a flame graph'],
  ['← → ↑ ↓', 'go through tabs, and through boxes of a flame graph'],
  ['Esc', 'leave the search field, zoom out, close this'],
  ['?', 'this help'],
];

export function Help(props: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={props.dialog} aria-labelledby="help">
      <h2 id="help">Keys</h2>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}
