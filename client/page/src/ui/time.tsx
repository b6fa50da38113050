import type { Timestamp } from '../messages';
import { millisecondsOf, spanInWords, timeInWords } from '../text/wording';

// "3 min ago", with the time itself as its title.
export function Ago(props: { time: Timestamp | undefined }) {
  const milliseconds = millisecondsOf(props.time);
  if (Number.isNaN(milliseconds)) return <span class="dim">unknown</span>;
  const text = `${spanInWords((Date.now() - milliseconds) / 1000)} ago`;
  return (
    <time dateTime={props.time} title={timeInWords(props.time)}>
      {text}
    </time>
  );
}
