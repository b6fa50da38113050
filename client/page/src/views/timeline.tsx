// When the dumps of a group that are kept were taken, as bars over time.
import { millisecondsOfDumpName, timeInWords } from '../text/wording';

const BARS = 40;
const HEIGHT = 20;
const BAR_WIDTH = 4;

// How many of `times` are in each of `bars` equal parts from `begin` to `end`.
export function histogram(times: number[], begin: number, end: number, bars: number): number[] {
  const counts = new Array<number>(bars).fill(0);
  for (const time of times) {
    const at = Math.floor(((time - begin) / Math.max(1, end - begin)) * bars);
    const bar = Math.min(bars - 1, Math.max(0, at));
    counts[bar] = (counts[bar] ?? 0) + 1;
  }
  return counts;
}

export function Timeline(props: { dumps: string[]; first: number; last: number }) {
  const times = props.dumps.map(millisecondsOfDumpName).filter((time) => !Number.isNaN(time));
  if (times.length === 0) return <span class="dim">no dump is kept</span>;
  const counts = histogram(times, props.first, props.last, BARS);
  const most = Math.max(...counts);
  const text = `${times.length} kept, from ${timeInWords(new Date(Math.min(...times)).toISOString())} to ${timeInWords(new Date(Math.max(...times)).toISOString())}`;
  return (
    <svg class="timeline" role="img" aria-label={text} width={BARS * BAR_WIDTH} height={HEIGHT}>
      <title>{text}</title>
      {counts.map((count, i) => {
        const height = count === 0 ? 0 : Math.max(3, (count / most) * HEIGHT);
        return <rect x={i * BAR_WIDTH} y={HEIGHT - height} width={BAR_WIDTH - 1} height={height} />;
      })}
    </svg>
  );
}
