// What is said of a dump in one line: how the process died, how it hangs, or the worst finding.
import { isHarmless } from '../dump/findings';
import type { Dump } from '../messages';

export interface Verdict {
  // Empty: nothing is known to be wrong.
  severity: string;
  sentence: string;
}

export function verdictOf(dump: Dump | undefined): Verdict {
  if (dump?.crash) return { severity: 'CRASH', sentence: dump.crash.explanation ?? '' };
  if (dump?.hang) return { severity: 'HANG', sentence: dump.hang.explanation ?? '' };
  const worst = dump?.findings?.find((finding) => !isHarmless(finding));
  return worst === undefined
    ? { severity: '', sentence: '' }
    : { severity: worst.severity ?? '', sentence: worst.explanation ?? '' };
}
