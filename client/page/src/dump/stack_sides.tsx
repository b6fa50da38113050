// The stack of a thread in two dumps, beside each other: frames that are not in both stand out.
import type { Frame, Stack } from '../messages';
import { grouped } from '../text/wording';
import { Text } from '../ui/text';
import { frameInWords } from './program_frame';

const MAX_FRAMES = 200;

// How many frames are equal from the outermost end on: a thread that moves keeps what it was called by.
export function equalFrames(before: Frame[], after: Frame[]): number {
  let equal = 0;
  const most = Math.min(before.length, after.length);
  while (equal < most) {
    const first = before[before.length - 1 - equal];
    const second = after[after.length - 1 - equal];
    if (first === undefined || second === undefined || frameInWords(first) !== frameInWords(second)) break;
    equal += 1;
  }
  return equal;
}

function Side(props: { name: string; frames: Frame[]; equal: number }) {
  const { frames } = props;
  const different = frames.length - props.equal;
  return (
    <div>
      <h3>{props.name}</h3>
      {frames.length === 0 && <p class="dim">No stack.</p>}
      <ol class="frames">
        {frames.slice(0, MAX_FRAMES).map((frame, i) => (
          <li class={i < different ? 'frame changed' : 'frame'}>
            <Text value={frameInWords(frame)} />
          </li>
        ))}
      </ol>
      {frames.length > MAX_FRAMES && <p class="dim">and {grouped(frames.length - MAX_FRAMES)} more frames</p>}
    </div>
  );
}

export function SidesOfStack(props: { before: Stack | undefined; after: Stack | undefined }) {
  const before = props.before?.frames ?? [];
  const after = props.after?.frames ?? [];
  const equal = equalFrames(before, after);
  return (
    <div class="inside side-by-side">
      <Side name="before" frames={before} equal={equal} />
      <Side name="after" frames={after} equal={equal} />
    </div>
  );
}
