// The frames of a stack, innermost first: those of the program stand out.
import { useState } from 'preact/hooks';
import type { Frame, Stack } from '../messages';
import { label } from '../text/printable';
import { grouped, languageInWords } from '../text/wording';
import { Text } from '../ui/text';
import { isProgramFrame, nameOfFrame, placeOfFrame } from './program_frame';
import { endInWords, frameNumbers, gapInWords } from './stack_text';

const FIRST_FRAMES = 60;

const ORIGINS: Record<string, string> = {
  REGISTERS: 'the interrupted instruction',
  CFI: 'found by unwind tables',
  FRAME_POINTER: 'found by frame pointer',
  SIGNAL_FRAME: 'interrupted by a signal',
  INLINED: 'inlined by the compiler',
  RUNTIME: "the runtime's own record",
  RUNTIME_UNPLACED: "the runtime's own record; between which native frames is not known",
  CODE: 'found by what the code does to the stack',
  SEARCH: 'found by search: the only return address that can be right',
};

function detailsOf(frame: Frame): string {
  const parts = [frame.file, frame.address, frame.moduleOffset && `${frame.module ?? ''}+${frame.moduleOffset}`];
  return label([...parts, ORIGINS[frame.origin ?? ''], frame.unnamedReason].filter((part) => part).join(' · '), 1000);
}

function FrameLine(props: { frame: Frame; number: number }) {
  const { frame, number } = props;
  const place = placeOfFrame(frame);
  return (
    <li class={isProgramFrame(frame) ? 'frame own' : 'frame'} title={detailsOf(frame)}>
      <span class="number">#{number}</span> <Text class="function" value={nameOfFrame(frame)} />
      {place !== '' && (
        <>
          {' at '}
          <Text class="place" value={place} />
        </>
      )}{' '}
      <span class="module">
        (<Text value={frame.module || languageInWords(frame.language)} max={80} />)
      </span>
      {frame.origin === 'INLINED' && <span class="mark"> inlined</span>}
      {frame.origin === 'RUNTIME_UNPLACED' && <span class="mark"> called somewhere above</span>}
      {frame.repeatCount && (
        <span class="mark">
          {(frame.repeatLength ?? 1) > 1 ? ` these ${frame.repeatLength} frames` : ''} × {grouped(frame.repeatCount)}
        </span>
      )}
    </li>
  );
}

export function Frames(props: { stack: Stack | undefined }) {
  const [areAllShown, showAll] = useState(false);
  const { stack } = props;
  if (stack?.frames === undefined) return <p class="dim">No stack.</p>;
  const numbers = frameNumbers(stack);
  const shown = areAllShown ? stack.frames : stack.frames.slice(0, FIRST_FRAMES);
  const hidden = stack.frames.length - shown.length;
  const end = endInWords(stack);
  const gap = Number(stack.omittedBytes ?? 0) > 0 ? (stack.omittedBefore ?? 0) : -1;
  return (
    <>
      <ol class="frames">
        {shown.map((frame, i) => (
          <>
            {i === gap && <li class="remark">… {gapInWords(stack)}</li>}
            <FrameLine frame={frame} number={numbers[i] ?? i} />
          </>
        ))}
        {end !== '' && hidden === 0 && <li class="remark">stack ends here: {end}</li>}
      </ol>
      {hidden > 0 && (
        <button type="button" onClick={() => showAll(true)}>
          Show {grouped(hidden)} more frames
        </button>
      )}
    </>
  );
}
