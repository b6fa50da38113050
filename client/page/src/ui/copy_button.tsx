import { useState } from 'preact/hooks';
import { announce } from './announce';

export function CopyButton(props: { what: string; text: () => string | Promise<string> }) {
  const [done, setDone] = useState('');
  const copy = async () => {
    let said = 'copied';
    try {
      await navigator.clipboard.writeText(await props.text());
    } catch {
      // Browsers have no clipboard for pages that came over plain HTTP from another machine.
      said = 'could not be copied';
    }
    setDone(said);
    announce(`${props.what} ${said}`);
  };
  return (
    <button type="button" onClick={copy}>
      {done === '' ? `Copy ${props.what}` : `${props.what} ${done}`}
    </button>
  );
}
