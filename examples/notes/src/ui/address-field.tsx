import { useState } from 'preact/hooks'

interface AddressFieldProps {
  readonly text: string
  readonly isShown: boolean
  /** Whether the Address has a password to show or to copy. */
  readonly hasPassword: boolean
  readonly onInput: (text: string) => void
  readonly onShow: (isShown: boolean) => void
  /** @returns the Address with its password */
  readonly onCopy: () => string
}

/** The Address, its password hidden. */
export function AddressField(props: AddressFieldProps) {
  const { text, isShown, hasPassword, onInput, onShow, onCopy } = props
  const [isCopied, tell] = useState(false)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(onCopy())
      tell(true)
    } catch {
      // A page loaded over plain http has no clipboard. What is shown can be copied by hand.
      onShow(true)
    }
  }
  return (
    <div class="address">
      <label class="field">
        <span>ADDRESS</span>
        <input
          inputMode="url"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          placeholder="https://name:password@host:port/database"
          value={text}
          onInput={(event) => {
            tell(false)
            onInput(event.currentTarget.value)
          }}
        />
      </label>
      {hasPassword && (
        <div class="buttons">
          <button type="button" class="small quiet" onClick={() => onShow(!isShown)}>
            {isShown ? 'Hide password' : 'Show password'}
          </button>
          <button type="button" class="small quiet" onClick={() => void copy()}>
            {isCopied ? 'Copied' : 'Copy with password'}
          </button>
        </div>
      )}
    </div>
  )
}
