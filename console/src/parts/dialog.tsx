import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef } from 'preact/hooks'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'

interface DialogProps {
  readonly title: string
  readonly children: ComponentChildren
  /** Buttons, the main one last. */
  readonly footer?: ComponentChildren
  readonly isWide?: boolean
  /** Called by Escape and the close button; absent: it cannot be closed. */
  readonly onClose?: () => void
  /** Makes the dialog a form. */
  readonly onSubmit?: () => void
}

/** Without `:read-only`, which matches every select. */
const FIELDS = '.dialog-body :is(input, select, textarea):not(:disabled, [readonly])'

/** A modal dialog. The focus goes to its first field, and back to where it was. */
export function Dialog({ title, children, footer, isWide = false, onClose, onSubmit }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useId()
  useLayoutEffect(() => {
    const before = document.activeElement
    // The reference is already empty when the dialog is removed.
    const element = dialog.current
    element?.showModal()
    // The browser would choose the close button.
    element?.querySelector<HTMLElement>(FIELDS)?.focus()
    return () => {
      element?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={dialog}
      class={isWide ? 'dialog is-wide' : 'dialog'}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault()
        onClose?.()
      }}
    >
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault()
          onSubmit?.()
        }}
      >
        <header class="dialog-head">
          <h2 id={heading}>{title}</h2>
          {onClose && <Button kind="quiet" icon="close" label={en.common.close} onClick={onClose} />}
        </header>
        <div class="dialog-body">{children}</div>
        {footer !== undefined && <footer class="dialog-foot">{footer}</footer>}
      </form>
    </dialog>
  )
}

interface DialogButtonsProps {
  /** What the main button does. */
  readonly act: string
  readonly isBusy: boolean
  readonly disabled?: boolean
  /** null: it cannot be left now. */
  readonly onCancel: (() => void) | null
}

/** The footer of a form. */
export function DialogButtons({ act, isBusy, disabled = false, onCancel }: DialogButtonsProps) {
  return (
    <>
      <Button onClick={() => onCancel?.()} disabled={onCancel === null}>
        {en.common.cancel}
      </Button>
      <Button kind="primary" type="submit" isBusy={isBusy} disabled={disabled}>
        {act}
      </Button>
    </>
  )
}
