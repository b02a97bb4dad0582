package jdk.nashorn.api.scripting;

/** Maxwell asks whether a value is of this class, which Java 17 no longer has. None is. */
public abstract class ScriptObjectMirror {
}
