// Takes a dump, says how long it has taken so far, and can be cancelled.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api';
import { keepIfNotStored } from '../kept_dumps';
import { addressOfDump, go } from '../route';
import { announce } from './announce';
import { Sentence } from './text';

function requestId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function dump(process: string, signal: AbortSignal): Promise<void> {
  const taken = await call('CreateDump', { process, requestId: requestId() }, signal);
  keepIfNotStored(taken);
  go(addressOfDump(taken.name ?? ''));
}

export function DumpButton(props: { process: string; title: string }) {
  const [seconds, setSeconds] = useState(-1);
  const [problem, setProblem] = useState('');
  const abort = useRef<AbortController>(undefined);
  const isRunning = seconds >= 0;
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => setSeconds((last) => last + 1), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  useEffect(() => () => abort.current?.abort(), []);

  const start = async () => {
    abort.current = new AbortController();
    setProblem('');
    setSeconds(0);
    announce(`Dumping ${props.title}`);
    try {
      await dump(props.process, abort.current.signal);
      announce(`Dump of ${props.title} is there`);
    } catch (error) {
      const said = abort.current.signal.aborted
        ? 'cancelled'
        : error instanceof ApiError
          ? error.message
          : String(error);
      setProblem(said);
      announce(`No dump of ${props.title}: ${said}`);
    }
    setSeconds(-1);
  };
  if (isRunning) {
    return (
      <span class="running">
        <progress aria-label={`Dumping ${props.title}`} /> {seconds} s{' '}
        <button type="button" onClick={() => abort.current?.abort()}>
          Cancel
        </button>
      </span>
    );
  }
  return (
    <>
      <button type="button" class="dump" aria-label={`Dump ${props.title}`} onClick={start}>
        Dump
      </button>
      {problem !== '' && (
        <span class="said-problem">
          {' '}
          <Sentence value={problem} />
        </span>
      )}
    </>
  );
}
