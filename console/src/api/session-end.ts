/** Sessions that end while the page is open: the user signs in again, and the call that failed is sent again. */
import { signal } from '@preact/signals'

/** Whether the user is being asked to sign in again, over the page. */
export const isAskingAgain = signal(false)

let hasSession = false
let asked: Promise<boolean> | undefined
let answerAsked: (isRenewed: boolean) => void = () => undefined
let onEnd: () => void = () => undefined

/** @param whenEnded called when the user does not sign in again */
export function beginSession(whenEnded: () => void): void {
  hasSession = true
  onEnd = whenEnded
}

export function forgetSession(): void {
  hasSession = false
}

export function isSignedIn(): boolean {
  return hasSession
}

/** Asks the user to sign in again; calls that fail meanwhile wait for the same answer. @returns whether that worked */
export function renewSession(): Promise<boolean> {
  asked ??= new Promise<boolean>((resolve) => {
    isAskingAgain.value = true
    answerAsked = resolve
  }).finally(() => {
    asked = undefined
    isAskingAgain.value = false
  })
  return asked
}

/** The dialog's answer. */
export function answerRenewal(isRenewed: boolean): void {
  answerAsked(isRenewed)
}

export function endSession(): void {
  if (!hasSession) return
  hasSession = false
  onEnd()
}
