// An answer of the daemon, asked for again where it changes, and while the page is looked at.
import { useEffect, useState } from 'preact/hooks';
import { ApiError } from './api';

export interface Answer<T> {
  value?: T;
  // Why the last try has failed; `value` is then of an earlier one.
  error?: ApiError;
}

function asError(error: unknown): ApiError {
  return error instanceof ApiError
    ? error
    : new ApiError('unreadable', `The answer could not be read: ${String(error)}`);
}

// Loads once for each `key`; with `everyMs`, again after so long, unless the page is hidden.
export function useAnswer<T>(key: string, load: (signal: AbortSignal) => Promise<T>, everyMs = 0): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { key: string }>({ key });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const run = async () => {
      try {
        const value = document.hidden && everyMs > 0 ? undefined : await load(abort.signal);
        if (!abort.signal.aborted && value !== undefined) setAnswer({ key, value });
      } catch (error) {
        if (abort.signal.aborted) return;
        setAnswer((last) => ({ ...(last.key === key ? last : { key }), error: asError(error) }));
      }
      if (everyMs > 0 && !abort.signal.aborted) timer = window.setTimeout(run, everyMs);
    };
    run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs]);
  return answer.key === key ? answer : {};
}
