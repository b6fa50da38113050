// Names in text for people. They come from processes that may wish an operator ill.

// Control characters, separators of lines and paragraphs, what changes the direction of text, and halves of surrogate pairs.
const OBEYED = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\p{Cs}]/gu;

function escaped(character: string): string {
  const value = character.codePointAt(0) ?? 0;
  const digits = value.toString(16);
  return value < 0x100 ? `\\x${digits.padStart(2, '0')}` : `\\u{${digits}}`;
}

// Returns `text` on one line, without what a browser or a terminal obeys: as daemon/export/printable.h writes it.
export function printable(text: string): string {
  return text.replace(OBEYED, escaped);
}

// Returns at most `max` UTF-16 units of `text`, and no half of a surrogate pair at the end.
export function clipped(text: string, max: number): string {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? max - 1 : max);
}

// The printable begin of `text`, for titles, attributes and SVG, which have no markup to isolate it.
export function label(text: string, max: number): string {
  return text.length > max ? `${printable(clipped(text, max))}…` : printable(text);
}
