import { useId, useState } from 'preact/hooks'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'

interface CopyFieldProps {
  readonly label: string
  readonly value: string
  /** Hidden until the user wants to see it. */
  readonly isSecret?: boolean
  readonly isLong?: boolean
}

/** A value that the user copies elsewhere. */
export function CopyField({ label, value, isSecret = false, isLong = false }: CopyFieldProps) {
  const id = useId()
  const [isShown, setShown] = useState(!isSecret)
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="joined">
        {isLong && isShown ? (
          <textarea id={id} class="is-code" rows={3} readOnly value={value} onFocus={selectAll} />
        ) : (
          <input
            id={id}
            class="is-code"
            // Preact's types know one kind of input at a time.
            type={(isShown ? 'text' : 'password') as 'text'}
            autocomplete="off"
            readOnly
            value={value}
            onFocus={selectAll}
          />
        )}
        {isSecret && (
          <Button
            icon="eye"
            label={isShown ? en.common.hide(label) : en.common.show(label)}
            isPressed={isShown}
            onClick={() => setShown(!isShown)}
          />
        )}
        <CopyButton label={label} value={value} />
      </div>
    </div>
  )
}

function selectAll({
  currentTarget,
}: {
  readonly currentTarget: HTMLInputElement | HTMLTextAreaElement
}): void {
  currentTarget.select()
}

/** How long it says that it has copied, in ms. */
const SAID_MS = 2000

/** @param label of what it copies */
export function CopyButton({ label, value }: { readonly label: string; readonly value: string }) {
  const [outcome, setOutcome] = useState<'copied' | 'refused' | null>(null)
  const say = (next: 'copied' | 'refused') => {
    setOutcome(next)
    setTimeout(() => setOutcome(null), SAID_MS)
  }
  return (
    <Button
      icon={outcome === 'copied' ? 'check' : 'copy'}
      label={
        outcome === 'copied'
          ? en.common.copied
          : outcome === 'refused'
            ? en.common.notCopied
            : en.common.copy(label)
      }
      onClick={() => void copyText(value).then((isCopied) => say(isCopied ? 'copied' : 'refused'))}
    />
  )
}

/** Over plain HTTP a browser has no clipboard API, but copies a selection. @returns whether it was copied */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copySelection(text)
  }
}

function copySelection(text: string): boolean {
  const before = document.activeElement
  const area = document.createElement('textarea')
  area.value = text
  area.className = 'for-readers'
  // Inside an open dialog, since what is outside cannot have the focus.
  const host = document.querySelector('dialog[open]') ?? document.body
  host.append(area)
  area.select()
  const isCopied = document.execCommand('copy')
  area.remove()
  if (before instanceof HTMLElement) before.focus()
  return isCopied
}
