import { useLayoutEffect, useRef } from 'preact/hooks'
import { movedCaret } from '../notes/caret.ts'

interface TitleFieldProps {
  readonly title: string
  readonly isFixed: boolean
  /** Whether the field gets the focus when it appears. */
  readonly isFirst: boolean
  readonly onChange: (title: string) => void
  /** Enter. */
  readonly onEnter: () => void
  /** Ctrl-Enter. */
  readonly onToggle: () => void
}

/** The title of a note. When another device changes it, the caret stays at the same words. */
export function TitleField({ title, isFixed, isFirst, onChange, onEnter, onToggle }: TitleFieldProps) {
  const field = useRef<HTMLInputElement>(null)
  useLayoutEffect(() => {
    if (isFirst) field.current?.focus()
  }, [isFirst])
  // By hand, because a value that is set moves the caret to the end.
  useLayoutEffect(() => {
    const input = field.current
    if (input === null || input.value === title) return
    const { value, selectionStart, selectionEnd } = input
    input.value = title
    if (document.activeElement !== input) return
    const move = (at: number | null) => movedCaret(value, title, at ?? value.length)
    input.setSelectionRange(move(selectionStart), move(selectionEnd))
  }, [title])
  return (
    <input
      class="title"
      aria-label="Title"
      placeholder="Title"
      autocomplete="off"
      ref={field}
      readOnly={isFixed}
      onInput={(event) => onChange(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== 'Enter' || event.isComposing) return
        event.preventDefault()
        if (event.ctrlKey || event.metaKey) onToggle()
        else onEnter()
      }}
    />
  )
}
