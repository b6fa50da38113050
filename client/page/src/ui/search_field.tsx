// A field that looks for text in what is shown. The key / goes to it.
export function SearchField(props: { label: string; value: string; onInput: (value: string) => void }) {
  return (
    <input
      type="search"
      aria-label={props.label}
      placeholder={`${props.label}  ( / )`}
      value={props.value}
      maxLength={200}
      spellcheck={false}
      autocomplete="off"
      onInput={(event) => props.onInput(event.currentTarget.value)}
    />
  );
}
