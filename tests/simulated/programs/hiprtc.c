/* A libhiprtc that returns its source as the code; a source with `bad` in it fails to compile. */
#include <stdio.h>
#include <string.h>

static char code[256];
static int status;

int hiprtcVersion(int *major, int *minor) {
    *major = 10;
    *minor = 0;
    return 0;
}

int hiprtcCreateProgram(void **program, const char *source, const char *name, int header_count,
                        const char **headers, const char **names) {
    (void)headers, (void)names;
    snprintf(code, sizeof code, "%s|%s|%d", source, name, header_count);
    status = strstr(source, "bad") != NULL ? 6 : 0;
    *program = code;
    return 0;
}

int hiprtcCompileProgram(void *program, int count, const char **options) {
    for (int i = 0; i < count; ++i) {
        strncat(program, "|", sizeof code - strlen(code) - 1);
        strncat(program, options[i], sizeof code - strlen(code) - 1);
    }
    return status;
}

int hiprtcGetCodeSize(void *program, size_t *size) {
    *size = strlen(program);
    return 0;
}

int hiprtcGetCode(void *program, char *into) {
    memcpy(into, program, strlen(program));
    return 0;
}

int hiprtcGetProgramLogSize(void *program, size_t *size) {
    (void)program;
    *size = sizeof "line 1: error";
    return 0;
}

int hiprtcGetProgramLog(void *program, char *into) {
    (void)program;
    memcpy(into, "line 1: error", sizeof "line 1: error");
    return 0;
}

int hiprtcDestroyProgram(void **program) {
    puts(*program == code ? "destroyed" : "another program was destroyed");
    fflush(stdout);
    return 0;
}
