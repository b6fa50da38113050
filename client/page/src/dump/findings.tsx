// What stackd concludes, worst first.
import type { Finding } from '../messages';
import { enumInWords } from '../text/wording';
import { Sentence } from '../ui/text';

const MAX_DETAILS = 30;

export function isHarmless(finding: Finding): boolean {
  return finding.severity === 'HARMLESS';
}

export function SeverityMark(props: { severity: string | undefined }) {
  const severity = props.severity ?? 'SEVERITY_UNSPECIFIED';
  return <strong class={`severity ${severity.toLowerCase()}`}>{enumInWords(severity)}</strong>;
}

function OneFinding(props: { finding: Finding }) {
  const { finding } = props;
  const details = finding.details ?? [];
  return (
    <li class={`finding ${(finding.severity ?? '').toLowerCase()}`}>
      <SeverityMark severity={finding.severity} /> <span class="kind">{enumInWords(finding.kind)}</span>
      <p class="said">
        <Sentence value={finding.explanation} />
      </p>
      {details.length > 0 && (
        <ul class="details">
          {details.slice(0, MAX_DETAILS).map((detail) => (
            <li>
              <Sentence value={detail} />
            </li>
          ))}
          {details.length > MAX_DETAILS && <li class="dim">and {details.length - MAX_DETAILS} more</li>}
        </ul>
      )}
    </li>
  );
}

// `isCrash`: the process has ended, so that no thread hangs any more is nothing to say.
export function Findings(props: { findings: Finding[] | undefined; isCrash?: boolean }) {
  const findings = props.findings ?? [];
  const serious = findings.filter((finding) => !isHarmless(finding));
  const harmless = findings.filter(isHarmless);
  if (props.isCrash && findings.length === 0) return null;
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">Findings</h2>
      {serious.length > 0 ? (
        <ul class="findings">
          {serious.map((finding) => (
            <OneFinding finding={finding} />
          ))}
        </ul>
      ) : (
        !props.isCrash && <p class="well">No thread is known to hang.</p>
      )}
      {harmless.map((finding) => (
        <p class="dim">
          Harmless: <Sentence value={finding.explanation} />
        </p>
      ))}
    </section>
  );
}
