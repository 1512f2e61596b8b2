import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'

interface DialogProps {
  readonly title: string
  readonly children: ComponentChildren
  /** Also called for Escape. */
  readonly onClose: () => void
  /** While work is under way it does not close. */
  readonly isBusy?: boolean
}

/** A question or a form over the page. The focus stays in it, and returns to where it was. */
export function Dialog({ title, children, onClose, isBusy = false }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const before = document.activeElement
    const dialog = box.current
    dialog?.showModal()
    return () => {
      dialog?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      class="dialog"
      ref={box}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault()
        if (!isBusy) onClose()
      }}
    >
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  )
}
