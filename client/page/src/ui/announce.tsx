// What a screen reader says while the operator waits.
import { useEffect, useState } from 'preact/hooks';

let say: (text: string) => void = () => {};

export function announce(text: string): void {
  say(text);
}

export function Announcer() {
  const [text, setText] = useState('');
  useEffect(() => {
    say = setText;
  }, []);
  return (
    <div class="unseen" role="status" aria-live="polite">
      {text}
    </div>
  );
}
