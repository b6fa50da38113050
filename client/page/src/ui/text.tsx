import { clipped, printable } from '../text/printable';

// What a title shows of a text that is clipped: more would cover the screen.
const MAX_TITLE = 2000;
const MAX_SHOWN = 240;

// Text of a process: printable, bounded, and isolated from the direction of what stands around it.
export function Text(props: { value: string | undefined; max?: number; class?: string }) {
  const value = props.value ?? '';
  const max = props.max ?? MAX_SHOWN;
  if (value.length <= max) return <bdi class={props.class}>{printable(value)}</bdi>;
  return (
    <bdi class={props.class} title={printable(clipped(value, MAX_TITLE))}>
      {printable(clipped(value, max))}…
    </bdi>
  );
}

// A sentence that the daemon made; it may quote names.
export function Sentence(props: { value: string | undefined }) {
  return <Text value={props.value} max={1000} />;
}
