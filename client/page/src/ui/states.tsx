// What stands where an answer is not there yet, or is none.
import type { ComponentChildren } from 'preact';
import type { Answer } from '../use_answer';
import { Sentence } from './text';

// Shows `children` of the answer; above it why a newer one could not be had.
export function Loaded<T>(props: { answer: Answer<T>; what: string; children: (value: T) => ComponentChildren }) {
  const { value, error } = props.answer;
  return (
    <>
      {error && (
        <div class="problem" role="alert">
          <strong>{error.code.replaceAll('_', ' ')}</strong>: <Sentence value={error.message} />
          {value !== undefined && ' What is shown is older.'}
        </div>
      )}
      {value !== undefined && props.children(value)}
      {value === undefined && !error && <p class="dim" aria-busy="true">{`Loading ${props.what} …`}</p>}
    </>
  );
}

export function Empty(props: { children: ComponentChildren }) {
  return <p class="empty">{props.children}</p>;
}
